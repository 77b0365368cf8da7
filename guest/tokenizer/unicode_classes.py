"""The class of each Unicode code point, for the split patterns: one byte each, compressed.

Made by tests/make_unicode_classes.py from the Unicode character database, version 15.1.0; do not edit.
"""

import base64
import zlib

UNICODE_VERSION = "15.1.0"


def class_table() -> bytes:
    """One byte per code point, 0x110000 in all.

    ASCII stands for itself; other white space is 0x0B; numbers 0xD1, letters 0xD2, punctuation 0xD3,
    marks 0xD4, symbols 0xD5; everything else, unassigned included, 0xD0.
    """
    return zlib.decompress(base64.b85decode(_TABLE))


_TABLE = (
    "c-rmVg`zZ3K>%P{;1`evK@g=&N>T|4rMpv<P>@a)c*V05@54^+nV#9Y^?iTbySsDebj+E#Gmm-f;~xKnCqC&fp8S-jKKje2J^dMf"
    "^~`5I`#H~j-t%AZ!oPmei~r^&Fa6t>{oUWc{1vZ!)vI6g+Sk4Q4R8F1H@*2SZ++W8zWp8VeAm0*^H2Z$-uJ!#1OM{D4}JI}|N3tq"
    "{n*Dp@ySnp`ZJ&X+~>dW#V>vND_{NE*T3=2Z+-ha|Nh<o_|NZs{|7((umAqhkN@W<KmFOyfAPy-{rWe*{oU{X_y7L?4}bhqC_D<2"
    "9;JC<|9_I^q4;*U+kczpyCmK1c4;y$Pv$Ls&Ye-ziT>+@_^o}Z=Y83gHMK8<;+r%n>UdGN_b);c#?luqk!QE5{NkLs^;VX~zIfBp"
    ">K&(PQ4#X6sWzqiKh@u+znqOzUFp(6FI)7mY4JC14{6vE|0EfW;jUHX#x;sLZK4wLrfOwbUVU?jPuVZjrPSDGP<BKj>(Ii*QWSR}"
    "-ID91XXQ@z2`|bbge=deH;uM$UxkqNGHfoi{nnvZ|H49#)TS%j+$&5L%ep@Km@*j&Ga2l2-;mO%6^!Lm)N3SDSrpo@buRAnsIBLr"
    "`gf=tS(VqJ44_*}iWyX)sQlGWg}8rM4!`*u>a4AbtJ+f?auda5P)p04$)X-8PJbE5s_?t%FC$Wg-)kPBpZ@(Mvi>0Y$!+;R3_nhP"
    "lctIM&+8s2%7EmM|4lgc4~OQv>XUBN+E!8rn8oSOrh198;46oAwj%q7@5kvsgkSHpif=N^|9XqG&5mNA*%*FU5q@Y3pcnrBjW}mI"
    "Z8dC~Ze_#plf16_*`ZVJh96agD#%X#j|+Es1`-aHwJGu@KH)GZb<4llB<(hkjon_7M7z#=op0RJrD2W3ymuzWVJ!TzyK6RR;uNQ}"
    "GoVZbUrv2Gii6GlY@uo-yRo9nia*7s-KMi*Rv5zgG%o88VXNkWp*@PJTXdb4@`!nD_MbGsCf)g6Ghb|4RWo^rM#aH^+Z{dQks_O%"
    "pN!OyGBKOdlO~+`z$k=nlig4rYqwt)PB>FKPRfy@4Y$3@SVuC_{thb>$92!E4^Qi_8Ufc^>KWFyNAoKp=dAx#BkUZFj_p61M~((x"
    "HtLxTvTSmE4b_D2l<C*P8bmdn*bl?SEFc+~dG}vO^PY0n(f|B%<3+UpHHY9?a>n?q&i~L|;0c4*d6|c6S7Dm@>T%^izy07yuUgkz"
    "FjvKjl%2R-H9w6F!}>N+Ka*yCZfQom)iDb|lM6_l_%}xr!&43IJNpDJhTaQk!+PIjjGMHtU7w!F=-#xZs+`;67lpsQJ(L?CR&Lw!"
    "OeYulviJ}(xorP-C1*Jw#pL|>*zH68XWh>oc@nBTpBcZd`tvq6{r<f?s_1MV9v$@O10D6pkH$XBr(X@u?C+AMk1YGYq_Zs9KcBE>"
    "1RLwmH;fQ@bxt^mbE?VK=4dRb{v_S=rqw3hlg!EJdeMTq)2xz`b0fM#_2>o<IeRAOPfOeEPH^5NTq6va?qAZ`#lREl<YM0xjn3Te"
    "s&S@*TC)qa;id-D#VxKDmxr<L+$Oa=;%yIfc5BzSjyk_My4=}2E1NAXP!6v?+4gnCTJaXi(gxk`Y<d0dCfdNd@bBexeURQq<%xo1"
    "H&udp=X`u~txh?cPLln$7dt^&pZvez`N_0xXh$r)Tx#K|I!;;NKX0rJ`Np3QYiFhHRvYKCn`ga_-;DnN000000QZ>lKL7v#00000"
    "000000000000000001mH{&}qZ=jE=HrZT;g9fSNhJZUp}C~;(C2<0PWqo)rqZhoGG?V_jHcAreVbX(-B-68q(fa>xH^)qUxo&Y?^"
    "<N9Bc&6HVIWJ<RG>BCc3k1GGBnzi|VObHL4V%_X5O%EmA?7#0&)%Ue8i|hAth?D)rXl#lIEtS|IMn@*U^YrbIbkkqQHydxy$(F|%"
    "k7sy@_g=gmho7dC`BgNr?5MJ@eysk{{g-U6qIbeSlwe#$O-b~>&Od*BRg3N?`PlYyqPC{=%jbsT0{{R3000000002@+KS(|IO<Z~"
    "0000000000a1Xe;<hoa~+{{%oi{(FftNJdwL1Fi9e)UF4dB4r%s<mkP-nXjswWaCgjbpFeLh7>5xAb@AJzcY@+lf}&Pk%lsbYJF0"
    "9)<mv^w79&(S>zo4C{!d@%>}VvYop@bd|Q5&+}%_=_OOptv8*op}oIx80#yFm%~nNJe=|O!b0u6)#Godi@*4?+ag4_jouw=(2bXG"
    "g?`VTZ=BC;x@&rN%jaL=^ov@v`Ep#`|KU!#6C1bpjoxjj&xd;`FC->io8-3B*>z%k$LGJt-LLrE+r`!D#F=P1)2D{<esyj$$3HiH"
    "N&ZraFO7tYBk%M`e8&Dagl%)Os_sosRztdQSN(S2T$#_kUf`tq-87t;@Y}G`rRl>>wZAF>@%{XpIB%PV6hl#{$D-z01Yxm8mfLoR"
    "*QSH(9zKMH!8KhPeAnh*K0n;H<=u_l2}fJAGy6j+OjVre&!dct6MAI*zgqu)z3|WU^Q-!wcD6R?h<1S$mJX#h6kC?1A)NKM)|Q??"
    "5_OaF^(|T;X*-#<^}ShDIibDG)X1ealpXnqrSWB<<r1%+-4X|%9UE@F(v+?14<_30%J6$nzlm3g_G3VlqBZ;4|HLWzKYW}~nGMww"
    "UZN_S7Vn3t1K-K`hE)Mq<z1BKS;n7w{u!p@k{;FH51v^x_I#)iFJDbg>H9}##iOg*Jy-v-a!y?C_7K_nqdErt2SnY;^Izi+)k^#8"
    "r=h4H$$7)iva!I^<gSj-$0a{nm!DXKKTLZsod0Run+@~7duHII@VjN6o~OK*4s!Y(NZgGUCjjpHuhO3~=HG?$^Yf!$-1A2-W(L8!"
    "CNxd3d>&m~v(MfCY(6j8?;-Ym<6Jk8^dF44I)o(deX^1LWvBHl<r5kQy~eqZS7$q?hjjf**i=a2&<}U>Zt29?(z(#FCw6uM%+5Q5"
    "TG8Z3JAh(}cZgLoxjwLd_ie{g?a_L}rN)o?*s+=a_nvzjHgvIJI0L(Mc_nMsSJpi$JA@EC{~B)hDaM;zpFOwGpK2*700694T+pS~"
    "Q-KG!Dv^zzywQ&X006*)T5rU~DgXcg0000009=eqS2*R0pQWw3_rp5-ldv{EAEvou*YWi~zUyl9ytg#Er&bi7*;|}X1+GWpA&nms"
    "_ldgN4LQ%;BW6i<oH{y#+oqnLzV7{B`@frOAOipZ004md!}>pPzk9b0=YO5b2LJ#700000;0`D+b!jenIeg3Ni;0q@{2grKdds_h"
    "l^6iP{W>1F=5(w7PJc2Mf0%df)Cd3o007%<y-WZ6?fXN>Z@?+(&mW}C=|3%_$|}-)&H7cZc|Tj;$@#0v>3La1>*m_;*uz7%e17Q)"
    "wwrQG`oGJp^q+4(<;67Rm;Qc3d>zv{B7De<RXdJi6rwX3uJF0YsiVn{@*_UEr$0H<+f2%N(2jgu)p0-C2HJ~5o~I)Z{Hi8PQxk1~"
    "%g%q}jqdaMN0?sf2+gNwI9^ze&aFQFIpo*KjH}#Ru0>t4JhGF@uPC_Q0l4ydK=o&&{NW+AhcNN`e&L=h54Ej&>tW(Kf^X&o-Syt$"
    "RqFa>SUMrIcCE7hx4W_U<hS!A&WYngSU3e!o`e~k_-KC1IjR1u&&M3LZ{G{a;MdNhoy-hHO$5W-=Nsi_{Js3xc2e`&*E1}ghhKWV"
    "6vEv)8FG<QK2Lp^XkVvap>libKX7-h@EUt__Vo=%?-FChAkdlq@03Ul_qVNoUDqF<fBvSWTyy?5)BcVsk1$(%!rcCEZ~2EaWc!N4"
    "UB^D)`~Uy|0000000000000000000000000000000000000000000000002DQCJ{{0001hX%Auj!1@RP00000m*RRo00000004lJ"
    "`<-xGDjxs<H_jXt^LGH_KL7v#05HmW8UO$Qa2Bpu0ssI20000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0D!wMdtj6}000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000I=lGkeYK1"
)
